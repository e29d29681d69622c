"""Streams of an event loop."""

import asyncio
import time

import pytest
from conftest import until_idle

from llmrt import AsyncEngine, ClosedError, RequestError, RequestOutputKind, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)
LONG = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)


async def collect(stream):
    return [output async for output in stream]


def test_each_output_has_the_text_so_far(engine, llm):
    outputs = asyncio.run(collect(engine.generate("Once upon a time", GREEDY, "a")))
    texts = [output.outputs[0].text for output in outputs]
    assert all(after.startswith(before) for before, after in zip(texts, texts[1:]))
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].request_id == "a"
    assert outputs[-1].outputs == llm.generate("Once upon a time", GREEDY)[0].outputs


def test_deltas_add_up_and_the_last_output_can_be_the_only_one(engine, llm):
    expected = llm.generate("Once upon a time", GREEDY)[0].outputs[0]

    def params(kind):
        return SamplingParams(temperature=0, max_tokens=12, logprobs=0, output_kind=kind)

    deltas = asyncio.run(collect(engine.generate("Once upon a time", params(RequestOutputKind.DELTA))))
    assert "".join(output.outputs[0].text for output in deltas) == expected.text
    assert sum((output.outputs[0].token_ids for output in deltas), []) == expected.token_ids
    assert sum(len(output.outputs[0].logprobs) for output in deltas) == 12
    assert deltas[-1].outputs[0].finish_reason == "length"
    [only] = asyncio.run(collect(engine.generate("Once upon a time", params(RequestOutputKind.FINAL_ONLY))))
    assert only.outputs[0].text == expected.text


def test_many_streams_share_steps(engine):
    async def all_of_them():
        prompts = ["Once upon a time", "The cat", "A boy"] * 8
        streams = [collect(engine.generate(prompt, GREEDY)) for prompt in prompts]
        return [outputs[-1].outputs[0].text for outputs in await asyncio.gather(*streams)]

    texts = asyncio.run(all_of_them())
    assert texts == texts[:3] * 8


def test_an_aborted_request_ends_with_what_there_is(engine):
    async def run():
        outputs = []
        async for output in engine.generate("Once upon a time", LONG, "a"):
            outputs.append(output)
            await engine.abort("a")
        await engine.abort("a")
        await engine.abort("never seen")
        await until_idle(engine)
        return outputs[-1]

    last = asyncio.run(run())
    assert last.finished and last.outputs[0].finish_reason == "abort"


def test_a_stream_that_is_left_gives_its_blocks_back(engine):
    async def run():
        async for _ in engine.generate("Once upon a time", LONG):
            break
        stream = engine.generate("Once upon a time", LONG)
        await anext(stream)
        await stream.aclose()
        return await until_idle(engine)

    assert asyncio.run(run())["n_aborted"] == 2


def test_a_task_that_is_cancelled_gives_its_blocks_back(engine):
    async def run():
        tasks = [asyncio.create_task(collect(engine.generate("Once upon a time", LONG))) for _ in range(4)]
        await asyncio.sleep(0.05)
        [task.cancel() for task in tasks]
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_idle(engine)

    asyncio.run(run())


def test_a_loop_that_ends_in_the_middle_leaves_nothing(engine):
    async def start():
        stream = engine.generate("Once upon a time", LONG)
        await anext(stream)
        return stream

    stream = asyncio.run(start())
    del stream
    asyncio.run(until_idle(engine))


def test_two_loops_one_after_the_other_and_at_the_same_time(engine):
    expected = asyncio.run(collect(engine.generate("The cat", GREEDY)))[-1].outputs

    async def both():
        in_thread = asyncio.to_thread(lambda: asyncio.run(collect(engine.generate("The cat", GREEDY))))
        return await asyncio.gather(in_thread, collect(engine.generate("The cat", GREEDY)))

    first, second = asyncio.run(both())
    assert first[-1].outputs == second[-1].outputs == expected


def test_a_stream_that_goes_on_in_another_loop_is_an_error(engine):
    stream = engine.generate("The cat", SamplingParams(max_tokens=None, ignore_eos=True))
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(anext(stream))
    with pytest.raises(RequestError, match="event loop") as e:
        second.run_until_complete(asyncio.wait_for(collect(stream), 60))
    assert e.value.code == "other_loop"
    first.run_until_complete(until_idle(engine))
    for loop in first, second:
        loop.close()


def test_streams_of_a_closed_engine_end_with_an_exception():
    async def run():
        engine = AsyncEngine(max_num_seqs=2)
        streams = [collect(engine.generate("Once upon a time", LONG)) for _ in range(6)]
        tasks = [asyncio.create_task(stream) for stream in streams]
        await asyncio.sleep(0.02)
        began = time.monotonic()
        engine.shutdown()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert time.monotonic() - began < 5
        with pytest.raises(ClosedError):
            await engine.check_health()
        return results

    for result in asyncio.run(run()):
        assert isinstance(result, ClosedError) and result.code == "closed", result


def test_a_closed_engine_takes_no_requests():
    engine = AsyncEngine()
    engine.close()
    engine.close()
    assert not engine.is_running
    with pytest.raises(ClosedError):
        asyncio.run(collect(engine.generate("Once", GREEDY)))


def test_a_request_that_is_refused_raises_in_its_stream(engine):
    with pytest.raises(RequestError) as e:
        asyncio.run(collect(engine.generate("word " * 5000, GREEDY)))
    assert e.value.code == "prompt_too_long" and e.value.remedy
    with pytest.raises(RequestError, match="top_p"):
        asyncio.run(collect(engine.generate("Once", SamplingParams(top_p=3))))
    with pytest.raises(TypeError, match="sampling_params"):
        asyncio.run(collect(engine.generate("Once", {"temperature": 0})))
    with pytest.raises(TypeError, match="prompt"):
        asyncio.run(collect(engine.generate(5, GREEDY)))


def test_names_of_running_requests_are_unique(engine):
    async def run():
        first = engine.generate("Once upon a time", LONG, "a")
        await anext(first)
        with pytest.raises(RequestError, match="'a' is running"):
            await anext(engine.generate("Once", GREEDY, "a"))
        await first.aclose()
        return await collect(engine.generate("Once", GREEDY, "a"))

    assert asyncio.run(run())[-1].finished


def test_vectors_and_the_tokenizer(engine, llm):
    async def run():
        async with engine:
            return await engine.embed("The cat"), await engine.get_tokenizer()

    output, tokenizer = asyncio.run(run())
    assert (output.outputs.embedding == llm.embed("The cat")[0].outputs.embedding).mean() > 0.99
    assert tokenizer.encode("The cat") == output.prompt_token_ids


def test_a_slow_reader_gets_several_tokens_at_a_time(engine):
    async def run():
        sizes = []
        async for output in engine.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=60)):
            sizes.append(len(output.outputs[0].token_ids))
            await asyncio.sleep(0.1)
        return sizes

    sizes = asyncio.run(run())
    assert sizes == sorted(sizes) and sizes[-1] > len(sizes)
