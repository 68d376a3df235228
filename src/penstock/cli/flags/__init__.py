"""How are flags read? What people type, as the values commands need."""
