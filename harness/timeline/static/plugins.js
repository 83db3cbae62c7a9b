// Plugins of the Perfetto UI that ask each trace for what none of PyTorch's holds: batteries of phones, their start-ups,
// power rails, samples of kernels. Together a third of the time that the UI spends on a trace before it shows anything.

const ids = [
  'com.android.AndroidDmabuf',
  'com.android.AndroidLog',
  'com.android.AndroidLongBatteryTracing',
  'com.android.AndroidStartup',
  'com.android.CpuPerUid',
  'com.android.GpuWorkPeriod',
  'com.google.PixelCpmTrace',
  'dev.perfetto.CpuProfile',
  'dev.perfetto.CpuidleTimeInState',
  'dev.perfetto.EntityStateResidency',
  'dev.perfetto.Ftrace',
  'dev.perfetto.HeapProfile',
  'dev.perfetto.InstrumentsSamplesProfile',
  'dev.perfetto.LinuxPerf',
  'dev.perfetto.PowerRails',
  'org.kernel.Wattson',
];

// As the UI keeps its flags.
export const IDLE = Object.fromEntries(ids.map((id) => [`plugin_${id}`, 'OVERRIDE_FALSE']));
