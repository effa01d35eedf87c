"""What a client holds and sees: image sets on the device, their partition among clients, and augmented views."""
