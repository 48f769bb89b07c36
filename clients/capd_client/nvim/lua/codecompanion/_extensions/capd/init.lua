-- CodeCompanion's extension: sends each message that a user submits to capd, and adds capd's text for
-- the model to it.
--
--     require("codecompanion").setup({
--       mcp = { servers = { capd = require("capd").server() } },
--       extensions = { capd = { opts = {} } },
--     })

local capd = require("capd")

local M = { exports = { turn = capd.turn } }

-- CodeCompanion submits results of tools as well, and the same message again after a failed request.
-- So the last message of each chat that was sent to capd is kept here, and is not sent again.
local taken = setmetatable({}, { __mode = "k" })

local function last_words(chat)
  if chat.adapter and chat.adapter.type == "acp" then
    -- The agent has a session of its own. If `capd acp` runs the agent, it sends the prompts to capd.
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

---Send the user's message to capd before `chat` submits it. An error never stops the chat.
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
