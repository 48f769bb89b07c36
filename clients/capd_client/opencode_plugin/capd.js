// Sends the user's messages to capd, which switches on the tools that they need.
//
// Written by `capd install opencode`, which writes it anew; `capd uninstall opencode` removes it.
// capd's answer goes to the model after the user's text, in the same request. The plugin never makes
// opencode wait longer than BUDGET, or FIRST_BUDGET for the first message of a process, or LONGEST
// while a daemon is being started or loads its model. Without a daemon it does nothing. It connects
// to capd's socket in the role control (docs/protocol.md).

import { existsSync, lstatSync, statSync } from "node:fs"
import { connect } from "node:net"
import { homedir } from "node:os"
import { dirname, join, resolve } from "node:path"

const LONGEST = 5000
// As for the hooks of other clients: the user's setting, in seconds, counts if it is positive.
const OWN = Math.min(Math.max(Number(process.env.CAPD_HOOK_BUDGET) || 0, 0) * 1000, LONGEST)
const BUDGET = OWN || 300
const FIRST_BUDGET = OWN || 2000 // opencode starts its MCP servers only with the first message
const STARTING = 30_000 // a start that is older has failed, or is over
const PATIENCE = 20_000 // for a session that opencode opens after the message, and for its tools
const PAUSE = 20
const RELIST = 60 // opencode was seen to list the tools again 8-26 ms after it was told
const SAYING = 50 // the least time that the daemon is given for its answer
const INSTALLED_HOME = ""

const sleep = (ms) =>
  new Promise((done) => {
    setTimeout(done, ms).unref?.()
  })

const isFolder = (path) => {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}

function socketPath(env) {
  if (env.CAPD_SOCKET) return resolve(env.CAPD_SOCKET)
  const home = INSTALLED_HOME || env.CAPD_HOME
  if (home) return join(resolve(home), "run", "capd.sock")
  if (env.XDG_RUNTIME_DIR?.startsWith("/")) return join(env.XDG_RUNTIME_DIR, "capd", "capd.sock")
  const run = `/run/user/${process.getuid()}`
  if (isFolder(run)) return join(run, "capd", "capd.sock")
  return join(env.HOME || homedir(), ".local", "state", "capd", "run", "capd.sock")
}

// Opens a connection of role control. Its function `ask` returns the result of a method.
function open(path) {
  return new Promise((opened, failed) => {
    // Another user's program must not get the user's text.
    if (lstatSync(path).uid !== process.getuid()) throw new Error("the socket is another user's")
    const waiting = new Map()
    const socket = connect(path)
    let begun = ""
    let last = 0
    const give_up = () => {
      socket.destroy()
      const error = new Error("capd is not there")
      failed(error)
      for (const { reject } of waiting.values()) reject(error)
      waiting.clear()
    }
    const write = (value) => socket.write(`${JSON.stringify(value)}\n`)
    const ask = (method, params) =>
      new Promise((resolve, reject) => {
        last += 1
        waiting.set(last, { resolve, reject })
        write({ jsonrpc: "2.0", id: last, method, params })
      })
    const take = (message) => {
      if (message.capd === "welcome") return opened({ ask, close: () => socket.destroy() })
      if (message.capd === "refused") return give_up()
      const request = waiting.get(message.id)
      waiting.delete(message.id)
      if (message.error) request?.reject(new Error(message.error.message))
      else request?.resolve(message.result)
    }
    socket.setEncoding("utf8")
    socket.setTimeout(PATIENCE, give_up)
    socket.unref?.()
    socket.on("error", give_up)
    socket.on("close", give_up)
    socket.on("data", (chunk) => {
      const lines = (begun + chunk).split("\n")
      begun = lines.pop()
      try {
        for (const line of lines) take(JSON.parse(line))
      } catch {
        give_up()
      }
    })
    write({
      capd: "hello",
      protocol: 1,
      role: "control",
      client: { name: "opencode-plugin", pid: process.pid },
    })
  })
}

// opencode has one session with capd for each project folder, found by process and folder.
async function sessionOf(capd, directory) {
  const give_up_at = Date.now() + PATIENCE
  while (Date.now() < give_up_at) {
    const { sessions } = await capd.ask("sessions", {})
    const ours = sessions.filter((each) => each.pid === process.pid && each.project === directory)
    if (ours.length === 1) return ours[0].key
    if (ours.length > 1) return undefined
    await sleep(PAUSE)
  }
  return undefined
}

// The shim empties the file `start.lock` when it starts a daemon.
function isStarting(path) {
  try {
    return Date.now() - statSync(join(dirname(path), "start.lock")).mtimeMs < STARTING
  } catch {
    return false
  }
}

async function reached(path, deadline) {
  // With the first message opencode starts the shim, which starts a daemon if none runs.
  while (isFirst && !process.env.CAPD_NO_START && Date.now() < deadline.at) {
    if (existsSync(path)) break
    if (isStarting(path)) deadline.at = deadline.begun + LONGEST
    else if (Date.now() > deadline.begun + FIRST_BUDGET) break
    await sleep(PAUSE)
  }
  return await open(path)
}

async function handOver(text, directory, deadline, show) {
  const capd = await reached(socketPath(process.env), deadline)
  try {
    // A daemon answers, so the first message may wait for its session.
    if (isFirst) deadline.at = Math.max(deadline.at, deadline.begun + FIRST_BUDGET)
    const session = await sessionOf(capd, directory)
    if (session === undefined) return ""
    isFirst = false
    // The daemon has to know if its text comes too late: then it sends it with the next message.
    const mute = Date.now() >= deadline.at
    const patience = () => Math.max(deadline.at - Date.now() - RELIST, SAYING) / 1000
    const asked = { text, session, mute, patience: patience(), longest: OWN ? 0 : LONGEST / 1000 }
    let turn = await capd.ask("turn", asked)
    if (turn.held) {
      deadline.at = deadline.begun + LONGEST
      turn = await capd.ask("turn", { ...asked, patience: patience(), longest: 0, again: true })
    }
    if (turn.changed?.added?.length) await sleep(RELIST)
    if (turn.notice) show(turn.notice)
    return turn.context ?? ""
  } finally {
    capd.close()
  }
}

let isFirst = true

async function inTime(work, deadline) {
  let answer
  const ended = work.catch(() => "").then((found) => (answer = found ?? ""))
  while (answer === undefined && Date.now() < deadline.at)
    await Promise.race([ended, sleep(deadline.at - Date.now())])
  return answer ?? ""
}

// opencode sends synthetic parts to the model, and does not show them. It sorts parts by their ids.
function synthetic(beside, text) {
  const { sessionID, messageID, id } = beside
  return { id: `${id}capd`, sessionID, messageID, type: "text", text, synthetic: true }
}

export const CapdPlugin = async ({ client, directory }) => ({
  "chat.message": async (input, output) => {
    // If `capd acp` runs opencode, it sends the prompts to capd itself.
    if (process.env.CAPD_ACP) return
    const written = (output.parts ?? []).filter(
      (part) => part.type === "text" && !part.synthetic && !part.ignored,
    )
    const text = written.map((part) => part.text).join("\n")
    if (!text.trim()) return
    const begun = Date.now()
    const deadline = { begun, at: begun + BUDGET }
    // Shows the user what was switched on. A version of opencode without toasts shows nothing.
    const show = (message) => {
      const toast = { body: { message, variant: "info" } }
      void Promise.resolve(client.tui?.showToast?.(toast)).catch(() => {})
    }
    const work = async () => {
      const session = await client.session.get({ path: { id: input.sessionID } })
      // In a session that another session started, a model writes the messages.
      if (session?.data?.parentID) return ""
      // This request makes opencode start its MCP servers now, and not only after the message.
      void Promise.resolve(client.mcp?.status?.()).catch(() => {})
      return await handOver(text, directory, deadline, show)
    }
    const context = await inTime(work(), deadline)
    if (context) output.parts.push(synthetic(written.at(-1), context))
  },
})
