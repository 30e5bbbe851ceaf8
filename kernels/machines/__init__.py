"""The machines: TPU, GPU, Neuron and Taichi; what they share; the door to private names."""
