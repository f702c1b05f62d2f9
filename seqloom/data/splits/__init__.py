"""Which examples train and which are held out."""
