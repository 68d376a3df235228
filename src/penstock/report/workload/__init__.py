"""How is a workload shown?"""
