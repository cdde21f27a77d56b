"""The services of Flotilla, one folder each; they exchange messages and never import each other."""
