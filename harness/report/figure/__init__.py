"""A sweep over one number as a picture."""
