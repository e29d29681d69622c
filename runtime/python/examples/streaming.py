"""Two requests streamed at once, one of them aborted, as with vLLM's asynchronous engine; the import is llmrt's."""

import asyncio
import sys

from llmrt import AsyncEngineArgs, AsyncLLMEngine, RequestOutputKind, SamplingParams


async def stream(engine, prompt, request_id):
    params = SamplingParams(max_tokens=48, temperature=0.8, output_kind=RequestOutputKind.DELTA)
    async for output in engine.generate(prompt, params, request_id=request_id):
        for completion in output.outputs:
            print(completion.text, end="", flush=True)
        if output.finished:
            print(f"\n[{request_id}: {output.outputs[0].finish_reason}]")


async def main():
    engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=sys.argv[1]))
    try:
        first = asyncio.create_task(stream(engine, "Once upon a time", "first"))
        second = asyncio.create_task(stream(engine, "The little dog", "second"))
        await asyncio.sleep(0.01)
        await engine.abort("second")
        await asyncio.gather(first, second)
    finally:
        engine.shutdown()


asyncio.run(main())
