"""Changes of stored schedules: what people and programs do to them, each as a compare-and-set."""
