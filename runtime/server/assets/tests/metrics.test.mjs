// node --test runtime/server/assets/tests/*.test.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { Rate, engineNumbers, ownRows, parse } from "../metrics.js";

const numbers = (text, model) => engineNumbers(parse(text), model);

test("a sample has a name, labels and a value", () => {
  const [a, b] = parse(
    '# HELP x y\n# TYPE x gauge\nvllm:x{model_name="a\\"b\\\\n",le="0,1}"} 2.5e1 1700000000\r\ny +Inf\n',
  );
  assert.deepEqual(
    [a.name, a.value, [...a.labels]],
    [
      "vllm:x",
      25,
      [
        ["model_name", 'a"b\\n'],
        ["le", "0,1}"],
      ],
    ],
  );
  assert.deepEqual([b.name, b.value, b.labels.size], ["y", Infinity, 0]);
});

test("lines that are no samples are skipped", () => assert.deepEqual(parse("<html>\nx\nx NaN\n{} 1\nx y\n"), []));

test("requests are summed over models, the KV cache is the selected model's", () => {
  const text =
    'vllm:num_requests_running{model_name="a"} 1\nvllm:num_requests_running{model_name="b"} 2\n' +
    'vllm:kv_cache_usage_perc{model_name="a"} 0.25\nvllm:kv_cache_usage_perc{model_name="b"} 0.5\n';
  assert.equal(numbers(text, "a").running, 3);
  assert.deepEqual([numbers(text, "a").kvUse, numbers(text, "c").kvUse], [0.25, 0.5]);
});

test("what is missing is null", () => assert.ok(Object.values(numbers("")).every((value) => value === null)));

test("tokens of running requests are counted where the counter lags", () => {
  const text =
    "vllm:generation_tokens_total 10\nvllm:time_to_first_token_seconds_count 2\nvllm:time_per_output_token_seconds_count 30\n";
  assert.equal(numbers(text).generated, 32);
  assert.equal(numbers("vllm:generation_tokens_total 10\n").generated, 10);
});

test("prefix hits are a share", () => {
  assert.equal(numbers("vllm:prefix_cache_queries_total 8\nvllm:prefix_cache_hits_total 2\n").prefixHits, 0.25);
  assert.equal(numbers("vllm:prefix_cache_queries_total 0\nvllm:prefix_cache_hits_total 0\n").prefixHits, null);
});

test("the server's own metrics become rows", () => {
  const rows = ownRows(
    parse('llmrt:fallback_nodes_total{device="cpu"} 3\nllmrt:x_seconds_bucket{le="1"} 1\nvllm:y 1\n'),
  );
  assert.deepEqual(rows, [{ metric: "fallback_nodes", of: "cpu", value: 3 }]);
});

test("a rate needs two readings of one server", () => {
  const rate = new Rate();
  const seen = [
    [10, 1],
    [30, 2],
    [30, 3],
    [5, 4],
    [6, 6],
    [null, 7],
    [9, 8],
    [9, 8],
  ].map(([n, s]) => rate.update(n, s));
  assert.deepEqual(seen, [null, 20, 0, null, 0.5, null, null, null]);
});
