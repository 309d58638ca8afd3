// Dialogues by the unchanged npm packages of OpenAI and Anthropic.

import assert from "node:assert/strict";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { SDKS_URL: URL, SDKS_KEY: KEY, SDKS_POOR_KEY: POOR } = process.env;
const OPENAI = `${URL}/openai/v1`;
const ANTHROPIC = `${URL}/anthropic`;
const model = "sandbox/sandbox-text-1";
const say = (content) => [{ role: "user", content }];

// The requests that a client sends.
function counted() {
  const sent = [];
  return [sent, (...request) => (sent.push(request), fetch(...request))];
}

async function withOpenAI() {
  const client = new OpenAI({ baseURL: OPENAI, apiKey: KEY });
  const ask = (content, more) =>
    client.chat.completions.create({ model, messages: say(content), ...more });
  const whole = await ask("Name three rivers");
  const text = whole.choices[0].message.content;
  assert(text && whole.choices[0].finish_reason === "stop");
  let pieces = "";
  let usage;
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await ask("Name three rivers", options)) {
    pieces += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(pieces, text);
  assert.deepEqual(usage, whole.usage);
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  assert(models.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(ask("x", { web_search_options: {} }), (error) => {
    assert(error instanceof OpenAI.BadRequestError);
    return error.code === "unsupported_parameter" && error.param === "web_search_options";
  });
  const [sent, counting] = counted();
  const poor = new OpenAI({ baseURL: OPENAI, apiKey: POOR, fetch: counting });
  const short = poor.chat.completions.create({ model, messages: say("x") });
  await assert.rejects(short, { status: 402, code: "insufficient_credits" });
  assert.equal(sent.length, 1);
  const failing = await ask("[[fail]]", { stream: true });
  await assert.rejects(async () => {
    for await (const _ of failing);
  }, OpenAI.APIError);
}

async function withAnthropic() {
  const client = new Anthropic({ baseURL: ANTHROPIC, apiKey: KEY });
  const ask = { model, max_tokens: 200, messages: say("Name three rivers") };
  const whole = await client.messages.create(ask);
  assert(whole.content[0].text && whole.stop_reason === "end_turn");
  const streamed = await client.messages.stream(ask).finalMessage();
  assert.deepEqual(streamed.content, whole.content);
  assert(streamed.usage.input_tokens > 0);
  const counted_ = await client.messages.countTokens({ model, messages: ask.messages });
  assert(counted_.input_tokens >= whole.usage.input_tokens);
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  assert(models.includes(model));
  const [sent, counting] = counted();
  const poor = new Anthropic({ baseURL: ANTHROPIC, apiKey: POOR, fetch: counting });
  await assert.rejects(poor.messages.create(ask), { status: 402 });
  assert.equal(sent.length, 1);
  const failing = client.messages.stream({ ...ask, messages: say("[[fail]]") });
  await assert.rejects(failing.finalMessage(), Anthropic.APIError);
}

await withOpenAI();
await withAnthropic();
console.log("The npm packages of OpenAI and Anthropic work.");
