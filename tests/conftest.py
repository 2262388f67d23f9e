"""For all tests: hypothesis measures no time, as the first example of a test may compile a kernel."""

from hypothesis import settings

settings.register_profile("saros", deadline=None)
settings.load_profile("saros")
