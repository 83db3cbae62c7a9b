"""What the documents show works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_loop_in_the_readme_records_its_windows(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    windows = sorted(path.name for path in (tmp_path / "tb_logs" / "my_job" / "profile").iterdir())
    assert windows == ["window_00000022", "window_00000047", "window_00000072", "window_00000097"]
