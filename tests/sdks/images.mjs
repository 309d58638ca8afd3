// Images as input, by the unchanged packages of npm: OpenAI's, Anthropic's and the AI SDK.

import assert from "node:assert/strict";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateText } from "ai";
import OpenAI from "openai";

const { SDKS_URL: URL, SDKS_KEY: KEY } = process.env;
const OPENAI = `${URL}/openai/v1`;
const ANTHROPIC = `${URL}/anthropic`;
const model = "sandbox/sandbox-text-1";
// A transparent pixel.
const data =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const image_url = `data:image/png;base64,${data}`;
const seen = "I was shown 1 image: image/png of 1x1 pixels.";
const say = (content) => [{ role: "user", content }];

const openai = new OpenAI({ baseURL: OPENAI, apiKey: KEY });
const chat = await openai.chat.completions.create({
  model,
  messages: say([{ type: "image_url", image_url: { url: image_url } }]),
});
assert(chat.choices[0].message.content.startsWith(seen));
const input = say([{ type: "input_image", image_url, detail: "auto" }]);
const response = await openai.responses.create({ model, input });
assert(response.output_text.startsWith(seen));

const anthropic = new Anthropic({ baseURL: ANTHROPIC, apiKey: KEY });
const source = { type: "base64", media_type: "image/png", data };
const messages = say([{ type: "image", source }]);
const message = await anthropic.messages.create({ model, max_tokens: 200, messages });
assert(message.content[0].text.startsWith(seen));

const compatible = createOpenAICompatible({ name: "gensvc", baseURL: OPENAI, apiKey: KEY });
const own = createOpenAI({ baseURL: OPENAI, apiKey: KEY });
const claude = createAnthropic({ baseURL: `${ANTHROPIC}/v1`, apiKey: KEY });
for (const named of [compatible(model), own.chat(model), own.responses(model), claude(model)]) {
  const image = Buffer.from(data, "base64");
  const content = [
    { type: "text", text: "What is it?" },
    { type: "file", data: image, mediaType: "image/png" },
  ];
  const { text } = await generateText({ model: named, messages: say(content) });
  assert(text.startsWith(seen), `${named.provider}: ${text}`);
}
console.log("The packages of npm show images.");
