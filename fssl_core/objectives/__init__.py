"""Self-supervised objectives, one file each."""
