"One environment for every test and for the processes they start: no network, no figure windows, one BLAS thread."
import os

for name, value in dict(HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', TQDM_DISABLE='1', MPLBACKEND='Agg', OMP_NUM_THREADS='1').items():
    os.environ.setdefault(name, value)
