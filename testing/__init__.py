"""What tests and trials stand on, shipped with the command line that runs them."""
