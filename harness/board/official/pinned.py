"""The one release of the plugin that is repaired, told by the contents of the files that the repair leans on."""

from __future__ import annotations

import hashlib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "torch-tb-profiler"
PACKAGE = "torch_tb_profiler"
VERSION = "0.4.3"
SHA256 = {
    "plugin.py": "85a66d9b2b6d5e0b1235590f1d2df5919f60b497c2edcd16dfbc9f29680b6933",
    "run.py": "a9b6e9772b2d2d87fefb43390f519b4a7c3cc6291ec454ae5ab6950ef7c8b694",
    "consts.py": "5b03f24870a4253b70cc093c4c6a640b57a4c0fe50998e9a73507987d22b69ed",
    "profiler/data.py": "9a2c61c1269ca8ff09c609b4178c570b06ea0d3ded6db800499f0112e6902aec",
    "profiler/event_parser.py": "199de1edba3e22c040b4a58b3b7a8280ded04483d8fa94c94cd9287f1a8ddae5",
    "profiler/loader.py": "7019308bc2a0a7610ca705d5ed912cc25943f092929cddf202678ee7fbd7126d",
    "profiler/overall_parser.py": "09e9ca4f531c8e67e6deafc334c715e6d5d2bcea663abfe7d038d093738e9c3b",
    "profiler/communication.py": "023168462cb24321d1b37166d1bddb38cb12e8bd702c63e4f495d68a71edf3f2",
    "profiler/run_generator.py": "41587ef7d7614b7be30c969be77ebb44d6c1801c4d87cdc608ee87012aea5b98",
    "profiler/node.py": "0317e62e11a3a075968638e2c8d90575e126f8bbc91535360d29fdf38f4a0401",
    "profiler/op_tree.py": "4a4a98c1323491fdb6d914b09ccb7683bcfcc36389b4e126bf411819ea42130e",
    "profiler/tensor_core.py": "dbce8fbf678e9aca21a04ef39432134c80c478483ae34c0bfabb45740b22f834",
    "profiler/trace.py": "9d5a3bb74a9cc000d84585f13d62964573c275343bccb858f1e55bdfcae96098",
    "profiler/diffrun/contract.py": "107b29aae353b5ab118d1da577187278d1c8c7f5283c1c5026d262f933a4f4ca",
    "profiler/diffrun/tree.py": "9b59c07b8c56941b5ef9b089162d32d0a23b6cb888a9c833d9617ad0cca97f40",
    "static/index.html": "cf551192596eabc2c2840423781fedd573a5307d9d31c6a23f5b622753886f6b",
    "static/index.js": "ea4f71a12b4ecaaf162ea01b7ae8dce919ee76d79d5222921e0c06360f7fc8f7",
}


def folder() -> Path | None:
    """Where the plugin is installed; None where it is not. It is not imported."""
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def difference(at: Path) -> str | None:
    """What is not as it must be for the repair; None where all is."""
    version = metadata.version(DISTRIBUTION)
    if version != VERSION:
        return f"it is version {version}, and the repair is for {VERSION}"
    for name, expected in SHA256.items():
        try:
            found = hashlib.sha256((at / name).read_bytes()).hexdigest()
        except OSError as error:
            return f"its {name} cannot be read: {error.strerror}"
        if found != expected:
            return f"its {name} is not that of {VERSION}: somebody has changed it"
    return None
