// The server behind every row: MCP over stdio without an SDK, as little work a call as Node allows.
// Its one tool answers with `size` bytes of text; `text` is there to make a request large.

import { createInterface } from "node:readline";

const TOOL = {
  name: "echo",
  description: "Answer with as many bytes of text as asked.",
  inputSchema: {
    type: "object",
    properties: { size: { type: "integer" }, text: { type: "string" } },
    required: ["size"],
  },
};
const results = new Map();

function called(size) {
  if (!results.has(size)) {
    const content = [{ type: "text", text: "x".repeat(size) }];
    results.set(size, JSON.stringify({ content, isError: false }));
  }
  return results.get(size);
}

function answered(request) {
  switch (request.method) {
    case "tools/call":
      return called(request.params.arguments.size);
    case "tools/list":
      return JSON.stringify({ tools: [TOOL] });
    case "initialize":
      return JSON.stringify({
        protocolVersion: request.params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "echo", version: "1" },
      });
    case "ping":
      return "{}";
    default:
      return undefined;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.id === undefined) continue;
  const id = JSON.stringify(request.id);
  const result = answered(request);
  const member =
    result === undefined ? '"error":{"code":-32601,"message":"no such method"}' : `"result":${result}`;
  process.stdout.write(`{"jsonrpc":"2.0","id":${id},${member}}\n`);
}
