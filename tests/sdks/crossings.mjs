// Every dialect of the unchanged npm packages to every provider: the sandbox, and a stand-in for the
// vendors (upstream.py). OpenAI's, Anthropic's, the AI SDK's and LangChain's.

import assert from "node:assert/strict";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { SDKS_URL: BASE, SDKS_UPSTREAM: UPSTREAM, SDKS_KEY: KEY, SDKS_POOR_KEY: POOR } = process.env;
const OPENAI = `${BASE}/openai/v1`;
const ANTHROPIC = `${BASE}/anthropic`;
const SANDBOX = "sandbox/sandbox-text-1";
const MODELS = [
  SANDBOX,
  "openai/gpt-6-luna",
  "anthropic/claude-haiku-5-5",
  "gemini/gemini-3.5-flash-lite",
];
const say = (content) => [{ role: "user", content }];
const Weather = z.object({ city: z.string(), days: z.number().int() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};

async function get(path) {
  const answer = await fetch(BASE + path, { headers: { Authorization: `Bearer ${KEY}` } });
  assert.equal(answer.status, 200);
  return answer.json();
}

// The uuids of the last generations.
const newest = async () =>
  (await get("/v1/generate/history?per_page=9")).data.map((one) => one.uuid);

// A fetch that keeps what it sends.
function counted() {
  const sent = [];
  return [sent, (...request) => (sent.push(request), fetch(...request))];
}

const openai = (options) => new OpenAI({ baseURL: OPENAI, apiKey: KEY, ...options });
const anthropic = (options) => new Anthropic({ baseURL: ANTHROPIC, apiKey: KEY, ...options });

const chat = {
  name: "chat",
  client: openai,
  error: OpenAI.APIError,
  tools: ["Weather", "now"].map((name) => ({ type: "function", function: { name, parameters } })),
  ask: (client, model, content, more) =>
    client.chat.completions.create({ model, messages: say(content), ...more }),
  text: (answer) => answer.choices[0].message.content,
  streamed: async (client, model, content) => {
    const stream = client.chat.completions.stream({ model, messages: say(content) });
    return stream.finalChatCompletion();
  },
  calls: async (client, model, content, stream) => {
    const messages = say(content);
    const asked = { model, messages, tools: chat.tools };
    const answer = await (stream
      ? client.chat.completions.stream(asked).finalChatCompletion()
      : client.chat.completions.create(asked));
    const { message } = answer.choices[0];
    messages.push(message);
    for (const { id } of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: id, content: "fine" });
    }
    const last = await client.chat.completions.create(asked);
    const calls = message.tool_calls.map((call) => call.function);
    const read = (call) => [call.name, JSON.parse(call.arguments)];
    return [calls.map(read), chat.text(last)];
  },
  parsed: async (client, model) => {
    const response_format = zodResponseFormat(Weather, "weather");
    const asked = { model, messages: say("Bonn"), response_format };
    return (await client.chat.completions.parse(asked)).choices[0].message.parsed;
  },
};

const responses = {
  name: "responses",
  client: openai,
  error: OpenAI.APIError,
  tools: ["Weather", "now"].map((name) => ({ type: "function", name, parameters, strict: true })),
  ask: (client, model, input, more) => client.responses.create({ model, input, ...more }),
  text: (answer) => answer.output_text,
  streamed: (client, model, input) => client.responses.stream({ model, input }).finalResponse(),
  calls: async (client, model, content, stream) => {
    const input = say(content);
    const include = ["reasoning.encrypted_content"];
    const asked = { model, input, tools: responses.tools, include };
    const answer = await (stream
      ? client.responses.stream(asked).finalResponse()
      : client.responses.create(asked));
    const calls = answer.output.filter((item) => item.type === "function_call");
    // As the package has them, but for what it has read itself.
    input.push(...answer.output.map(({ parsed_arguments, ...item }) => item));
    for (const { call_id } of calls) {
      input.push({ type: "function_call_output", call_id, output: "fine" });
    }
    const last = await client.responses.create(asked);
    return [calls.map((call) => [call.name, JSON.parse(call.arguments)]), last.output_text];
  },
  parsed: async (client, model) => {
    const text = { format: zodTextFormat(Weather, "weather") };
    return (await client.responses.parse({ model, input: "Bonn", text })).output_parsed;
  },
};

const messages = {
  name: "messages",
  client: anthropic,
  error: Anthropic.APIError,
  tools: ["Weather", "now"].map((name) => ({ name, input_schema: parameters })),
  ask: (client, model, content, more) =>
    client.messages.create({ model, max_tokens: 500, messages: say(content), ...more }),
  text: (answer) => answer.content[0].text,
  streamed: (client, model, content) =>
    client.messages.stream({ model, max_tokens: 500, messages: say(content) }).finalMessage(),
  calls: async (client, model, content, stream) => {
    const turns = say(content);
    const asked = { model, max_tokens: 500, messages: turns, tools: messages.tools };
    const answer = await (stream
      ? client.messages.stream(asked).finalMessage()
      : client.messages.create(asked));
    const uses = answer.content.filter((block) => block.type === "tool_use");
    const results = uses.map(({ id }) => ({
      type: "tool_result",
      tool_use_id: id,
      content: "fine",
    }));
    turns.push({ role: "assistant", content: answer.content }, { role: "user", content: results });
    const last = await client.messages.create(asked);
    return [uses.map((use) => [use.name, use.input]), messages.text(last)];
  },
  parsed: async (client, model) => {
    const output_config = { format: zodOutputFormat(Weather) };
    const asked = { model, max_tokens: 500, messages: say("Bonn"), output_config };
    return (await client.messages.parse(asked)).parsed_output;
  },
};

async function texts(dialect, model) {
  const client = dialect.client();
  const text = dialect.text(await dialect.ask(client, model, "Name three rivers"));
  assert(text.split(" ").length > 5, text);
  assert.equal(dialect.text(await dialect.streamed(client, model, "Name three rivers")), text);
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  assert(models.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
}

async function tools(dialect, model) {
  const client = dialect.client();
  for (const stream of [false, true]) {
    const content = "[[tool:Weather]] [[tool:now]] How is it?";
    const [calls, text] = await dialect.calls(client, model, content, stream);
    assert.deepEqual(
      calls.map(([name]) => name),
      ["Weather", "now"],
    );
    for (const [, input] of calls) Weather.parse(input);
    assert(text.includes("fine"), text);
  }
  Weather.parse(await dialect.parsed(client, model));
}

async function errors(dialect, model) {
  const [sent, fetch] = counted();
  const client = dialect.client({ fetch });
  await assert.rejects(dialect.ask(client, model, "[[reject]]"), { status: 400 });
  assert.equal(sent.length, 1);
  sent.length = 0;
  await assert.rejects(dialect.ask(client, model, "[[rate_limit]]"), { status: 503 });
  assert.equal(sent.length, 3);
  // Some words, then a cut.
  const failing = await dialect.ask(client, model, "[[fail]]", { stream: true });
  let last;
  const reading = async () => {
    for await (const event of failing) last = event;
  };
  if (dialect === responses) {
    await reading();
    assert.equal(last.type, "response.failed");
  } else {
    await assert.rejects(reading, dialect.error);
  }
  sent.length = 0;
  const poor = dialect.client({ fetch, apiKey: POOR });
  await assert.rejects(dialect.ask(poor, model, "x"), { status: 402 });
  assert.equal(sent.length, 1);
  const wrong = dialect.client({ apiKey: "svc_wrong" });
  await assert.rejects(dialect.ask(wrong, model, "x"), { status: 401 });
}

// A client's patience of 1 s ends twice before the answer: one call upstream, one charge.
async function retries(dialect, model) {
  const text = `npm ${dialect.name} of ${model} [[slow:3]]`;
  const [sent, fetch] = counted();
  const client = dialect.client({ fetch, timeout: 1000, maxRetries: 2 });
  const before = await newest();
  assert(dialect.text(await dialect.ask(client, model, text)));
  assert.equal(sent.length, 3);
  const [uuid, last] = await newest();
  assert.equal(last, before[0]);
  const { metadata } = await get(`/v1/generate/${uuid}`);
  assert(metadata.attempts === 1 && metadata.joined > 0, JSON.stringify(metadata));
  if (model !== SANDBOX) {
    const query = new URLSearchParams({ text });
    const calls = await globalThis.fetch(`${UPSTREAM}/calls?${query}`);
    assert.equal(await calls.json(), 1);
  }
  const { data } = await get(`/v1/credits/ledger?generation=${uuid}`);
  assert.deepEqual(
    data.map((entry) => entry.kind),
    ["charge", "hold"],
  );
}

async function withAiSdk(model) {
  const compatible = createOpenAICompatible({ name: "gensvc", baseURL: OPENAI, apiKey: KEY });
  const own = createOpenAI({ baseURL: OPENAI, apiKey: KEY });
  const claude = createAnthropic({ baseURL: `${ANTHROPIC}/v1`, apiKey: KEY });
  const weather = tool({ inputSchema: Weather, execute: () => "fine" });
  for (const named of [compatible(model), own.chat(model), own(model), claude(model)]) {
    const asked = { model: named, prompt: "Name three rivers" };
    const whole = await generateText(asked);
    assert(whole.text && whole.finishReason === "stop", named.provider);
    assert(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
    let text = "";
    for await (const piece of streamText(asked).textStream) text += piece;
    assert.equal(text, whole.text);
    // The package calls the function by itself, and asks again with what it returned.
    const stopWhen = ({ steps }) => steps.length === 2;
    const called = await generateText({
      model: named,
      prompt: "[[tool:weather]] How is it?",
      tools: { weather },
      stopWhen,
    });
    assert.equal(called.steps.length, 2, named.provider);
    assert(called.text.includes("fine"), called.text);
    const failing = generateText({ model: named, prompt: "[[reject]]", maxRetries: 0 });
    await assert.rejects(failing, (error) => error.statusCode === 400);
  }
}

async function withLangChain(model) {
  const configuration = { baseURL: OPENAI };
  const asked = new ChatOpenAI({ model, apiKey: KEY, configuration });
  const whole = await asked.invoke("Name three rivers");
  let text = "";
  for await (const piece of await asked.stream("Name three rivers")) text += piece.content;
  assert.equal(text, whole.content);
  Weather.parse(await asked.withStructuredOutput(Weather).invoke("Bonn"));
}

for (const model of MODELS) {
  for (const dialect of [chat, responses, messages]) {
    for (const crossing of [texts, tools, errors, retries]) {
      try {
        await crossing(dialect, model);
      } catch (error) {
        console.error(`${crossing.name}: ${dialect.name} to ${model}`);
        throw error;
      }
    }
  }
  try {
    await withAiSdk(model);
    await withLangChain(model);
  } catch (error) {
    console.error(`The AI SDK or LangChain to ${model}`);
    throw error;
  }
}
console.log("Each dialect reaches each provider: npm.");
