"The notebook for GPUs runs at toy size wherever the tests do."
from daca_grpo.experiment import run_notebook

def test_gpu_smoke_at_toy_size(tmp_path):
    result = run_notebook('gpu_smoke', {'repeats': 1}, tmp_path/'run')
    assert result['shape'] == 'toy' and {r['stage'] for r in result['stages']} == {'optimiser', 'rollout', 'fixed', 'update'}
    assert .85 < result['planned_peak_gb'] / result['peak_gb'] < 1.15, 'the plan and the measured peak disagree'
    assert all(r['tflop'] > 0 for r in result['stages'] if r['stage'] != 'optimiser')
