"""What the training process writes for TensorBoard: curves, text, images, and what each window found."""
