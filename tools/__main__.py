"""python3 -I tools VERB ...: the package and what lies beside it, by a Python that knows neither."""

import runpy

if __name__ == "__main__":
    runpy.run_module("copyscope", run_name="__main__", alter_sys=True)
