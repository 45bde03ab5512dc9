"""Language models: texts, streams, tokens and interrupts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import cusync
import numpy as np
import pytest

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model(tiny):
    return cusync.Model(tiny, slots=2, context=256, device="cpu")


def test_a_model_has_sizes(model):
    assert (model.slots, model.context, model.vocabulary, model.element) == (2, 256, 264, "bf16")
    assert (model.place, model.ends) == ("host", [256])
    assert repr(model) == "<cusync.Model of 2 slots with 256 tokens each, on host>"


def test_the_text_is_that_of_the_command(model, tiny):
    arguments = ["generate", str(tiny), "--prompt", PROMPT, "--max-tokens", "24", "--cpu", "--json"]
    for more, options in [
        ([], {}),
        (["--temperature", "1.2", "--top-k", "50", "--top-p", "0.9", "--seed", "7"],
         {"temperature": 1.2, "top_k": 50, "top_p": 0.9, "seed": 7}),
    ]:
        ran = subprocess.run(
            [sys.executable, "-m", "cusync", *arguments, *more], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        text = json.loads(ran.stdout)["texts"][0]["text"]
        assert text and model.generate(PROMPT, max_tokens=24, **options) == text


def test_a_greedy_text_takes_the_largest_logit_step_by_step(model):
    text = model.generate(PROMPT, max_tokens=16, ignore_end=True)
    *first, token = model.tokens(PROMPT)
    model.clear(1)
    model.append(1, first)
    assert model.length(1) == len(first)
    tokens = []
    for _ in range(16):
        logits = model.step({1: token})
        assert logits.shape == (1, model.vocabulary) and logits.dtype == np.float32
        token = int(np.argmax(logits[0]))
        tokens.append(token)
    assert model.text(tokens) == text
    assert model.length(1) == len(first) + 16
    model.clear(1)
    assert model.length(1) == 0


def test_a_step_of_two_slots_gives_the_rows_of_each(model):
    rows = []
    for slot, token in [(0, 65), (1, 66)]:
        model.clear(slot)
        rows.append(model.step({slot: token})[0])
        model.clear(slot)
    both = model.step({1: 66, 0: 65})
    assert np.array_equal(both, np.stack([rows[1], rows[0]]))


def test_a_list_of_prompts_gives_a_list_of_texts(model):
    prompts = ["one", "two and more", model.tokens("three")]
    texts = model.generate(prompts, max_tokens=12, temperature=1.0, seed=3)
    alone = [model.generate(p, max_tokens=12, temperature=1.0, seed=3 + n) for n, p in enumerate(prompts)]
    assert texts == alone
    assert model.generate([], max_tokens=4) == []


def test_seeds_repeat_texts_and_other_seeds_give_others(model):
    def text(seed):
        return model.generate(PROMPT, max_tokens=24, temperature=1.5, seed=seed, ignore_end=True)

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) == 5


def test_a_stream_gives_the_text_in_pieces(model):
    whole = model.generate(PROMPT, max_tokens=32, temperature=1.0, seed=5, ignore_end=True)
    stream = model.stream(PROMPT, max_tokens=32, temperature=1.0, seed=5, ignore_end=True)
    pieces = list(stream)
    assert len(pieces) > 4 and "".join(pieces) == whole
    assert stream.ends == ["length"]


def test_a_stream_of_several_texts_names_them(model):
    prompts = ["one", "two", "three"]
    texts = ["", "", ""]
    with model.stream(prompts, max_tokens=8, ignore_end=True) as stream:
        for number, piece in stream:
            texts[number] += piece
    assert texts == model.generate(prompts, max_tokens=8, ignore_end=True)
    assert stream.ends == ["length"] * 3


def test_a_stop_ends_its_own_text_only(model):
    options = {"max_tokens": 40, "temperature": 1.0, "seed": 2, "ignore_end": True}
    first, second = model.generate(["one", "two"], **options)
    stop = first[10:13]
    assert len(stop) == 3 and stop not in second
    stopped = model.generate(["one", "two"], stop=stop, **options)
    assert stopped == [first[: first.index(stop)], second]
    several = model.generate("one", stop=["never there", stop], **options)
    assert several == stopped[0]
    stream = model.stream("one", stop=stop, **options)
    assert ("".join(stream), stream.ends) == (stopped[0], ["stop"])


def test_a_model_that_generates_is_busy_until_its_stream_is_closed(model):
    stream = model.stream(PROMPT, max_tokens=200, ignore_end=True)
    assert next(stream)
    with pytest.raises(cusync.CusyncError, match="the model is generating") as caught:
        model.step({0: 1})
    assert "close" in caught.value.help
    stream.close()
    assert list(stream) == []
    model.clear(0)
    assert model.step({0: 1}).shape == (1, 264)
    # A loop that is left early frees the model too.
    for _ in model.stream(PROMPT, max_tokens=200, ignore_end=True):
        break
    assert model.generate("x", max_tokens=2) is not None


def test_an_interrupt_ends_a_generation_and_the_model_goes_on(model):
    before = model.generate(PROMPT, max_tokens=8)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    begin = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        # It would take minutes.
        model.generate(["x"] * 10_000, max_tokens=200, ignore_end=True)
    assert 0.15 < time.perf_counter() - begin < 2
    assert model.generate(PROMPT, max_tokens=8) == before


def test_an_interrupt_ends_a_stream(model):
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    stream = model.stream(["x"] * 10_000, max_tokens=200, ignore_end=True)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    stream.close()
    assert model.generate("x", max_tokens=2) is not None


def test_other_threads_go_on_while_a_model_generates(model):
    steps, done = 0, threading.Event()

    def work():
        model.generate([PROMPT] * 4, max_tokens=100, ignore_end=True)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        steps += 1
    thread.join()
    assert steps > 10


def test_two_devices_have_the_logits_of_one(model, tiny):
    two = cusync.Model(tiny, slots=2, context=256, device="cpu", devices=2)
    for each in (model, two):
        each.clear(0)
        each.append(0, [66, 67, 68])
    one, other = model.step({0: 69})[0], two.step({0: 69})[0]
    assert abs(one - other).max() < 0.02 * abs(one).max()
    model.clear(0)


def test_mistakes_are_errors_with_hints(model, tiny, tmp_path):
    cases = [
        (lambda: model.length(2), "2 slots"),
        (lambda: model.step({0: 999}), "no token 999"),
        (lambda: model.append(0, [1] * 300), "no room"),
        (lambda: model.generate(""), "empty prompt"),
        (lambda: model.generate([1, 999]), "no token 999"),
        (lambda: model.generate("x" * 300), "the context has 256"),
        (lambda: model.generate("x", temperature=-1), "`temperature` is -1"),
        (lambda: model.generate("x", top_p=0), "`top_p` is 0"),
        (lambda: model.generate("x", max_tokens=0), "max_tokens=0"),
        (lambda: cusync.Model(tmp_path), "config.json"),
        (lambda: cusync.Model(tiny, context=100_000), "at most 512"),
        (lambda: cusync.Model(tiny, devices=0), "`devices` is 0"),
        (lambda: cusync.Model(tiny, devices=3, device="cpu"), "3 devices"),
        (lambda: cusync.tiny_model(tmp_path, "NoSuchModel"), "NoSuchModel is not supported"),
    ]
    for number, (call, message) in enumerate(cases):
        with pytest.raises(cusync.CusyncError) as caught:
            call()
        assert message in str(caught.value), number
    model.clear(0)


def test_a_model_without_a_tokenizer_takes_tokens(tmp_path):
    cusync.tiny_model(tmp_path, "Qwen3ForCausalLM")
    (tmp_path / "tokenizer.json").unlink()
    model = cusync.Model(tmp_path, context=64, element="f16", device="cpu")
    assert model.element == "f16"
    assert model.step({0: 7}).shape == (1, 264)
    with pytest.raises(cusync.CusyncError, match="tokenizer.json"):
        model.generate("x")
