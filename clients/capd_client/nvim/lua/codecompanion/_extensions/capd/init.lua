-- CodeCompanion's extension: each message that a user submits is a turn, and what the model is to be
-- told goes with it.
--
--     require("codecompanion").setup({
--       mcp = { servers = { capd = require("capd").server() } },
--       extensions = { capd = { opts = {} } },
--     })

local capd = require("capd")

local M = { exports = { turn = capd.turn } }

-- Answers of tools are submitted as well, and the same message again where a request failed: the
-- message that was taken last is not taken twice.
local taken = setmetatable({}, { __mode = "k" })

local function last_words(chat)
  if chat.adapter and chat.adapter.type == "acp" then
    -- The agent has a session of its own: `capd acp` before it hands its prompts over.
    return nil
  end
  local message = chat.messages and chat.messages[#chat.messages]
  local is_users = message and message.role == "user" and type(message.content) == "string"
  if not is_users or message == taken[chat] or (message._meta and message._meta.sent) then
    return nil
  end
  if message.opts and message.opts.visible == false then
    return nil
  end
  taken[chat] = message
  return vim.trim(message.content)
end

---Take the turn of a chat that is about to be sent; a chat is never stopped.
function M.before_submit(chat)
  local is_fine, err = pcall(function()
    local words = last_words(chat)
    if not words or words == "" then
      return
    end
    local context = capd.turn(words)
    if context ~= "" then
      chat:add_message({ role = "user", content = context }, { visible = false })
    end
  end)
  if not is_fine then
    vim.schedule(function()
      vim.notify_once("capd: " .. tostring(err), vim.log.levels.DEBUG)
    end)
  end
end

function M.setup(opts)
  capd.setup(opts)
  vim.api.nvim_create_autocmd("User", {
    pattern = "CodeCompanionChatCreated",
    group = vim.api.nvim_create_augroup("capd", { clear = true }),
    callback = function(event)
      local chat = require("codecompanion").buf_get_chat(event.data.bufnr)
      if chat then
        chat:add_callback("on_before_submit", M.before_submit)
      end
    end,
  })
end

return M
