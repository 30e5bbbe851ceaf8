"""AWS Neuron: what a machine without one can know of it."""
