-- :Capd, for people.

local capd = require("capd")

local M = {}

local VERBS = { "disable", "enable", "status", "tools", "turn" }

local function say(text)
  vim.notify("capd: " .. text)
end

local function fail(err)
  vim.notify("capd: " .. err.message, vim.log.levels.ERROR)
end

local function changes(changed)
  local said = {}
  for _, name in ipairs(changed and changed.added or {}) do
    table.insert(said, "+ " .. name)
  end
  for _, name in ipairs(changed and changed.removed or {}) do
    table.insert(said, "- " .. name)
  end
  return #said > 0 and ("\n" .. table.concat(said, "\n")) or ""
end

local shown = {
  status = function(result)
    local daemon = result.daemon or {}
    local lines = { ("capd %s, pid %s"):format(daemon.version or "?", daemon.pid or "?") }
    for _, each in ipairs(result.sessions or {}) do
      local on = {}
      for _, entry in ipairs(each.active or {}) do
        table.insert(on, entry.name or "?")
      end
      local what = #on > 0 and table.concat(on, ", ") or "nothing is on"
      table.insert(lines, ("%s (%s): %s"):format(each.key, each.client or "?", what))
    end
    return table.concat(lines, "\n")
  end,
  tools = function(result)
    local names = {}
    for _, tool in ipairs(result.tools or {}) do
      table.insert(names, tool.name)
    end
    return table.concat(names, "\n")
  end,
  turn = function(result)
    if result.problem and result.problem ~= "" then
      return ("%s could not be switched on: %s"):format(result.name, result.problem)
    end
    local words = result.outcome == "activate" and result.name or result.suggestion
    return ("%s %s%s"):format(result.outcome, words or "", changes(result.changed))
  end,
  enable = function(result)
    return result.text .. changes(result.changed)
  end,
}
shown.disable = shown.enable

---Run `:Capd VERB …`; `whole` is the text after `:Capd`, and `words` are its words.
function M.run(words, whole)
  local verb = words[1]
  if not shown[verb] then
    return fail({ message = ("no %s; one of %s"):format(verb, table.concat(VERBS, ", ")) })
  end
  local rest = vim.trim(whole:sub(#verb + 1))
  if rest == "" and (verb == "turn" or verb == "enable" or verb == "disable") then
    return fail({ message = verb .. " what? :Capd " .. verb .. (verb == "turn" and " TEXT" or " NAME") })
  end
  local function answered(err, result)
    if err then
      return fail(err)
    end
    if result.ok == false then
      return fail({ message = result.text })
    end
    say(shown[verb](result))
  end
  if verb == "status" then
    return capd.ask("status", {}, answered)
  end
  local params = {}
  if verb == "turn" then
    -- The answer is shown to a person, so the daemon need not write a text for a model.
    params.text, params.mute = rest, true
  elseif verb ~= "tools" then
    params.name = rest
  end
  capd.ask_session(verb, params, answered)
end

---Complete verbs, and the names of capabilities.
function M.complete(begun, line)
  local words = vim.split(vim.trim(line), "%s+")
  local candidates = VERBS
  if words[2] == "enable" or words[2] == "disable" then
    local err, result = capd.ask_now("caps", {}, 300)
    candidates = {}
    for _, each in ipairs(not err and result.capabilities or {}) do
      table.insert(candidates, each.name)
    end
  elseif #words > 2 then
    return {}
  end
  return vim.tbl_filter(function(each)
    return vim.startswith(each, begun)
  end, candidates)
end

return M
