"""What the papers print and state, and our runs under the names that they print."""
