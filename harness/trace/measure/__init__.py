"""What a trace's columns say in numbers: steps, device time, idle gaps, operators, kernels, memory, FLOPs."""
