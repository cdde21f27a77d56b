"""flotilla bench-pipeline --rate: pods that come one by one, at a steady rate."""
