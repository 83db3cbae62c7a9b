"""PyTorch's own TensorBoard plugin, repaired when TensorBoard loads it.

Its last release misreads today's traces, needs the internet and never sees a new window; docs/plugin.md says what is
done about it. The installed package stays as it is: its classes are changed in this process and in the parsers'.
"""
