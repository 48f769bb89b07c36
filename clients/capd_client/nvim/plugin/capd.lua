-- Defines :Capd; everything else is loaded when it is used.
if vim.g.loaded_capd then
  return
end
vim.g.loaded_capd = true

vim.api.nvim_create_user_command("Capd", function(command)
  require("capd.command").run(command.fargs, command.args)
end, {
  nargs = "+",
  desc = "capd: status, tools, turn TEXT, enable NAME, disable NAME",
  complete = function(begun, line)
    return require("capd.command").complete(begun, line)
  end,
})
