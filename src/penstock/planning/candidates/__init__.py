"""What could run each workload, and how much would a replica of it carry?"""
