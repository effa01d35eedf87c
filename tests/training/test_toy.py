import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.federation.participation import sample_clients
from fssl_core.training.split import METHODS
from fssl_core.training.toy import CURVATURES, OPTIMA, POSITIONS, at_syncs, share_followed, two_clients

SETTINGS = {"steps": 120, "sync_every": 40, "learning_rate": 0.02, "decay": 0.95}
both_methods = pytest.mark.parametrize("method", METHODS)


def positions(path: pd.DataFrame) -> np.ndarray:
    """``[moments, clients, 4]``"""
    return path[POSITIONS].to_numpy().reshape(-1, 2, 4)


def slow_loop(method, steps, sync_every, learning_rate, decay, seed, clients_per_window):
    """One number at a time, without noise."""
    online, momentum = [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    path = [online[client] + momentum[client] for client in range(2)]
    for step in range(steps):
        sampled = sample_clients(2, clients_per_window, seed, step // sync_every).tolist()
        for client in sampled:
            for j in range(2):
                momentum[client][j] = decay * momentum[client][j] + (1 - decay) * online[client][j]
                slope = CURVATURES[client][j] * (online[client][j] - OPTIMA[client][j])
                online[client][j] -= learning_rate * slope
        path += [online[client] + momentum[client] for client in range(2)]
        if (step + 1) % sync_every == 0:
            for models in (online, momentum) if method == "MonAcoSFL" else (online,):
                mean = [sum(models[client][j] for client in sampled) / len(sampled) for j in range(2)]
                models[:] = [list(mean), list(mean)]
            path += [online[client] + momentum[client] for client in range(2)]
    return np.array(path).reshape(-1, 2, 4)


@both_methods
@pytest.mark.parametrize("clients_per_window", [1, 2])
@pytest.mark.parametrize("sync_every", [1, 7])
def test_equals_a_slow_loop(method, clients_per_window, sync_every):
    settings = {"steps": 60, "sync_every": sync_every, "learning_rate": 0.05, "decay": 0.9, "seed": 3}
    settings["clients_per_window"] = clients_per_window
    np.testing.assert_allclose(positions(two_clients(method, **settings)), slow_loop(method, **settings), atol=1e-12)


@both_methods
def test_rows_in_order_of_time(method):
    path = two_clients(method, steps=5, sync_every=2, learning_rate=0.1, seed=9)
    assert path["step"].tolist()[::2] == [0, 1, 2, 2, 3, 4, 4, 5]
    assert path["synced"].tolist()[::2] == [False, False, False, True, False, False, True, False]
    assert path["client"].tolist() == [0, 1] * 8
    assert set(path["method"]) == {method}
    assert set(path["seed"]) == {9}


def test_momentum_models_are_the_closed_form_of_the_ema():
    """``m_t = d^t phi_0 + (1 - d) sum_s d^(t - 1 - s) phi_s`` over the steps s before t: none of its own step."""
    decay, steps = 0.9, 30
    path = positions(two_clients("MocoSFL", steps=steps, sync_every=99, learning_rate=0.1, decay=decay, noise=1.0))
    online, momentum = path[..., :2], path[..., 2:]
    for t in range(steps + 1):
        weights = (1 - decay) * decay ** np.arange(t - 1, -1, -1)
        expected = decay**t * online[0] + np.tensordot(weights, online[:t], 1)
        np.testing.assert_allclose(momentum[t], expected, atol=1e-12)


def test_methods_are_equal_until_the_first_synchronisation_and_online_models_always():
    mocosfl, monacosfl = (two_clients(method, **SETTINGS, noise=0.5, seed=1) for method in METHODS)
    unsynced = ~(mocosfl["synced"].cumsum() > 0)
    assert unsynced.sum() == 2 * (1 + 40)
    pd.testing.assert_frame_equal(mocosfl[unsynced][POSITIONS], monacosfl[unsynced][POSITIONS])
    pd.testing.assert_frame_equal(mocosfl[POSITIONS[:2]], monacosfl[POSITIONS[:2]])
    assert (mocosfl[~unsynced][POSITIONS[2:]] - monacosfl[~unsynced][POSITIONS[2:]]).abs().max().max() > 0.1


def test_synchronisation_makes_equal_what_its_method_averages():
    for method, averaged in (("MocoSFL", 2), ("MonAcoSFL", 4)):
        path = two_clients(method, **SETTINGS)
        before, after = positions(path)[[40, 41]]
        expected = np.broadcast_to(before[:, :averaged].mean(0), (2, averaged))
        np.testing.assert_allclose(after[:, :averaged], expected, rtol=1e-12)
        np.testing.assert_array_equal(after[:, averaged:], before[:, averaged:])


@both_methods
def test_average_of_emas_is_ema_of_the_average_with_full_participation_only(method):
    full, partial = (
        at_syncs(two_clients(method, **SETTINGS, noise=0.5, clients_per_window=count), SETTINGS["decay"])
        for count in (2, 1)
    )
    assert full["ema_gap"].max() < 1e-12
    assert partial["ema_gap"].max() > 0.1
    assert partial["ema_gap"].is_monotonic_increasing  # the largest so far


def test_distances_at_a_synchronisation():
    """Window of one step: momentum models are still at the origin, and clients one step of SGD away from it."""
    rate = 0.1
    for method in METHODS:
        table = at_syncs(two_clients(method, steps=1, sync_every=1, learning_rate=rate), 0.99)
        moved = rate * np.multiply(CURVATURES, OPTIMA)  # [clients, 2]
        assert table["sync"].tolist() == [1]
        assert table["distance_before"][0] == pytest.approx(np.linalg.norm(moved, axis=1).mean())
        assert table["distance_after"][0] == pytest.approx(np.linalg.norm(moved.mean(0)))
        assert table["followed"][0] == 0


def test_syncs_of_several_paths_do_not_mix():
    paths = [two_clients(method, **SETTINGS, noise=0.3, seed=seed) for method in METHODS for seed in (0, 1)]
    together = at_syncs(pd.concat(paths), SETTINGS["decay"])
    alone = pd.concat([at_syncs(path, SETTINGS["decay"]) for path in paths], ignore_index=True)
    pd.testing.assert_frame_equal(together, alone)
    assert together["sync"].tolist() == [1, 2, 3] * 4
    assert together["seed"].tolist() == [0, 0, 0, 1, 1, 1] * 2


def test_clients_that_do_not_drift_have_followed_nothing_in_particular():
    same = {"optima": [[1, 2], [1, 2]], "curvatures": [[1, 0.5], [1, 0.5]]}
    assert at_syncs(two_clients("MocoSFL", **SETTINGS, **same), SETTINGS["decay"])["followed"].isna().all()


@pytest.mark.parametrize("sync_every", [3, 20, 60])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_averaging_both_models_never_increases_the_distance(sync_every, noise):
    settings = SETTINGS | {"sync_every": sync_every}
    table = at_syncs(two_clients("MonAcoSFL", **settings, noise=noise), settings["decay"])
    assert (table["distance_after"] <= table["distance_before"] * (1 + 1e-12)).all()


def test_squares_of_distances_grow_exactly_when_more_than_half_of_the_drift_was_followed():
    path = two_clients("MocoSFL", steps=900, sync_every=15, learning_rate=0.01, decay=0.95, noise=3.0)
    followed = at_syncs(path, 0.95)["followed"]
    squares = ((path[POSITIONS[:2]].to_numpy() - path[POSITIONS[2:]].to_numpy()) ** 2).sum(1).reshape(-1, 2).sum(1)
    after = np.flatnonzero(path["synced"][::2])
    assert ((squares[after] > squares[after - 1]) == (followed > 0.5)).all()
    assert 5 < (followed > 0.5).sum() < len(followed) - 5


@pytest.mark.parametrize("window", [1, 7, 40, 300])
def test_share_followed_equals_a_scalar_loop(window):
    decay, own = 0.95, 0.0
    shares = []
    for _ in range(500):
        for step in range(window):
            own = decay * own + (1 - decay) * step  # a drift of one per step
        shares.append(own / window)
    assert share_followed(window, decay, first=True) == pytest.approx(shares[0], abs=1e-12)
    assert share_followed(window, decay, first=False) == pytest.approx(shares[-1], abs=1e-12)


def test_share_followed_in_the_simulation_where_drift_is_even():
    table = at_syncs(two_clients("MocoSFL", steps=1000, sync_every=50, learning_rate=1e-5), 0.99)
    assert table["followed"].iloc[0] == pytest.approx(share_followed(50, 0.99, first=True), abs=1e-3)
    assert table["followed"].iloc[-1] == pytest.approx(share_followed(50, 0.99, first=False), abs=1e-3)


def test_half_is_followed_at_the_windows_named_in_the_notebook():
    """T = 100: 1.6 T in the first window, sqrt(6 T) in a late one."""
    for first, window in ((True, 160), (False, 25)):
        assert share_followed(window - 2, 0.99, first=first) < 0.5 < share_followed(window + 2, 0.99, first=first)


def test_noise_has_its_size_and_is_the_seeds_alone():
    flat = {"curvatures": [[1e-12, 1e-12]] * 2, "noise": 2.0, "learning_rate": 0.1, "steps": 4000, "sync_every": 4000}
    first, again, other = (two_clients("MocoSFL", **flat, seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    moves = np.diff(positions(first)[:-1, :, :2], axis=0)
    assert moves.std(axis=0) == pytest.approx(0.1 * 2.0, rel=0.05)
    assert abs(np.corrcoef(moves.reshape(len(moves), 4).T) - np.eye(4)).max() < 0.06
    assert not np.allclose(first[POSITIONS], other[POSITIONS])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "FedAvg"}, "method='FedAvg' cannot be used: expected one of MocoSFL, MonAcoSFL"),
        ({"steps": 0}, "steps=0 cannot be used: expected at least 1"),
        ({"sync_every": 0}, "sync_every=0 cannot be used: expected at least 1"),
        ({"noise": -1.0}, "noise=-1.0 cannot be used: expected at least 0"),
        ({"decay": 1.0}, "decay=1.0 cannot be used: expected at least 0 and below 1"),
        ({"learning_rate": 2.0}, "learning_rate=2.0 cannot be used: expected above 0 and below 2, where SGD"),
        ({"clients_per_window": 3}, "clients_per_window=3 cannot be used: expected 1 or 2"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(SettingError, match=message):
        two_clients(**{"method": "MocoSFL"} | SETTINGS | changed)
