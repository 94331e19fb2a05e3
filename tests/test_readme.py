"The numbers in README.md are those of the run whose results are committed beside the notebooks."
from statistics import mean

from common import read, root

def test_readme_prints_the_committed_demo():
    readme, results = (root/'README.md').read_text(encoding='utf-8'), read(root/'nbs'/'demo'/'results.json')
    for method in ('wd1', 'wd1+dps'):
        runs = [r for r in results['runs'] if r['method'] == method]
        assert len(runs) == results['settings']['seeds']
        assert f"| {method} | {len(runs)} | {mean(r['final_cell_accuracy'] for r in runs):.3f} [" in readme
    for c in results['comparisons']:
        assert f"{c['mean_difference']:+.3f} [{c['low']:+.3f}, {c['high']:+.3f}]" in readme, (c['method'], c['versus'])
    difference = next(c for c in results['comparisons'] if c['versus'] == 'wd1')
    says_zero = 'not distinguishable from 0' in readme
    assert says_zero == (difference['low'] <= 0 <= difference['high'])

def test_readme_gives_the_commands_that_ci_runs():
    readme = (root/'README.md').read_text(encoding='utf-8')
    assert 'pip install -e . && daca-demo' in readme and "pip install -e '.[dev]' && python -m pytest" in readme
