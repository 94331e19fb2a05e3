"What must hold across chapters (DESIGN: a row depends on its own prompt and seed alone; plug-ins that are off change nothing)."
import pytest
import torch

from daca_grpo.canvas import row_seeds
from daca_grpo.denoiser import char_tokenizer, encode_prompts, small_denoiser
from daca_grpo.likelihood import estimate
from daca_grpo.method import RECIPES, estimator, recipe
from daca_grpo.progress import Credit, CreditRecorder
from daca_grpo.rollout import Sampler, rollout
from daca_grpo.tasks.core import get_task
from daca_grpo.trainer import TrainConfig, train

sampler = Sampler(length=12, num_steps=6, block_length=6, temperature=1.)
prompts = ['1234', '12341234' * 4, '3', '00120034']  # of different length: some rows are padded in a batch

@pytest.fixture(scope='module')
def denoiser(): return small_denoiser(char_tokenizer('01234'), seed=4)

def roll(denoiser, rows):
    recorder = CreditRecorder(Credit('dps'))
    samples = rollout(denoiser, *encode_prompts(denoiser, [prompts[r] for r in rows]), row_seeds(0, 0, rows), sampler, recorder.observers)
    return samples, recorder.scores(samples)

@pytest.mark.parametrize('row', range(len(prompts)))
def test_row_alone_and_in_a_batch(denoiser, row):
    together, scores = roll(denoiser, range(len(prompts)))
    alone, own = roll(denoiser, [row])
    assert torch.equal(alone.completion[0], together.completion[row]) and torch.equal(alone.birth_step[0], together.birth_step[row])
    torch.testing.assert_close(own.score[0], scores.score[row], atol=1e-5, rtol=0)
    for name in RECIPES:
        with torch.no_grad(): a, b = (estimate(denoiser, s, estimator(recipe(name)), iteration=1) for s in (alone, together))
        torch.testing.assert_close(a[0], b[row], atol=1e-4, rtol=0)

@pytest.mark.parametrize('base', ['wd1', 'diffu-grpo', 'gdpo'])
def test_plugins_that_are_off_train_to_the_base_methods_weights(base, tmp_path):
    task = get_task('sudoku', num_puzzles=(40, 2, 2))
    config = TrainConfig(steps=20, batch_size=16, num_iterations=2, sampler=Sampler(16, 4, 16, 1.), eval_every=0)
    def trained(method):
        model = small_denoiser(char_tokenizer(task.alphabet), hidden_size=32, num_layers=1)
        start = {n: p.clone() for n, p in model.state_dict().items()}
        train(model, task, method, config, tmp_path/method.name/str(len(list(tmp_path.glob('*/*')))))
        assert any(not torch.equal(p, start[n]) for n, p in model.state_dict().items())
        return model.state_dict()
    plain, off = trained(recipe(base)), trained(recipe(base + '+dps+sml', lam=0., sml_weight=0.))
    for name in plain: assert torch.equal(plain[name], off[name]), name

def test_fewer_rows_a_pass_change_no_rollout(denoiser):
    whole, _ = roll(denoiser, range(4))
    parts = [roll(denoiser, rows)[0] for rows in ([0, 1], [2, 3])]
    assert torch.equal(torch.cat([p.completion for p in parts]), whole.completion)
