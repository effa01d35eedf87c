"""What activations give away: attacks and defences, each with its threat model."""
