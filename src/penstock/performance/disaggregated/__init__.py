"""Predicts the speed of deployments that prefill and decode on separate replicas."""
