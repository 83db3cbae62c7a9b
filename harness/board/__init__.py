"""What people see in TensorBoard."""
