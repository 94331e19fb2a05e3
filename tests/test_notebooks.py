"""Every notebook runs from top to bottom: one test each. `#| slow`, `#| cuda`, `#| notest` and `#| eval: false` cells are left out.

Each notebook has a process of its own, forked from a server that has imported torch once, so that they share
neither state nor the cost of the import; as many run at a time as there are cores.
"""
import io, multiprocessing, os, sys, traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nbdev.config import get_config

from common import nbs, notebooks, root, templates

paths = [p for p in notebooks() if p not in templates()]
context = multiprocessing.get_context('forkserver')
context.set_forkserver_preload(['torch', 'transformers.models.llama.modeling_llama', 'nbdev.test'])

def child(path, skip_flags, cell_timeout, sender):
    "Run the notebook `path`, send what went wrong ('' if nothing did)"
    from nbdev.test import test_nb
    sys.__stderr__ = report = io.StringIO()  # where test_nb writes the traceback
    try: passed = test_nb(Path(path), skip_flags=skip_flags, basepath=str(root), cell_timeout=cell_timeout)[0]
    except Exception: passed = False; report.write(traceback.format_exc())
    sender.send('' if passed else report.getvalue() or 'failed without a traceback')
    os._exit(0)  # a cell that timed out may still be running

def run(path):
    "What went wrong in the notebook `path`, '' if nothing did"
    config = get_config(root)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(str(path), config.tst_flags, config.cell_timeout, sender))
    process.start(); sender.close()
    try: error = receiver.recv()
    except EOFError: error = None
    process.join()
    return f'{path.name}: its process ended with exit code {process.exitcode}' if error is None else error

@pytest.fixture(scope='session')
def results(request):
    "{path: future result} of the notebooks whose tests were selected"
    items = [o for o in request.session.items if getattr(o, 'originalname', '') == 'test_notebook']
    pool = ThreadPoolExecutor(os.cpu_count())
    yield {path: pool.submit(run, path) for path in [o.callspec.params['path'] for o in items]}
    pool.shutdown(cancel_futures=True)

@pytest.mark.parametrize('path', paths, ids=[str(p.relative_to(nbs)) for p in paths])
def test_notebook(path, results):
    error = results[path].result()
    if error: pytest.fail(error, pytrace=False)
