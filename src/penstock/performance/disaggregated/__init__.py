"""How fast is a deployment that prefills and decodes on separate replicas?"""
