"""What a review found: each test shows one fault."""
