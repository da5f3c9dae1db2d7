"""Training: settings, data, batches and objective of every kind of model, and the one loop that they go through."""
