"""Resources of a client in closed form, without training anything."""
