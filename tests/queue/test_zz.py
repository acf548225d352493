import os, pytest
from tests.queue.model import history as h
from tests.queue.test_model import clock, random_history
@pytest.mark.timeout(600)
def test_it(shard, clock):
    kinds = [h.WITH_FEWER, h.EVERYTHING]
    a, b = map(int, os.environ["ZZ"].split(","))
    for seed in range(a, b):
        try:
            random_history(shard, clock, seed, kinds[seed % 2])
        except BaseException as e:
            print("SEED", seed, type(e), str(e)[:1500]); print("\n".join(getattr(e, "__notes__", []))[-6000:]); raise
