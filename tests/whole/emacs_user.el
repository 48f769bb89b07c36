;;; emacs_user.el --- What a user of Emacs does with capd, in batch  -*- lexical-binding: t; -*-

;; The rest of the command line is the shim's command. gptel is played: its prompt is a buffer,
;; where the model's words have the text property `gptel'. Prints one JSON document.

(require 'capd)

(defvar seen nil)

(defun saw (name value)
  (setq seen (append seen (list name value))))

(defun failed-with (function &rest arguments)
  (condition-case err
      (progn (apply function arguments) :null)
    (capd-error (cadr err))))

(defun wait-for (look)
  (let ((until (time-add nil 60)))
    (while (not (funcall look))
      (unless (time-less-p nil until) (error "waited in vain: %S" seen))
      (accept-process-output nil 0.02))))

(defun transformed (text)
  "Return gptel's buffer with TEXT behind a response, as the transform leaves it."
  (with-temp-buffer
    (insert "an older question\n" (propertize "the model's answer" 'gptel 'response) "\n" text)
    (let ((is-called nil))
      (capd-gptel-transform (lambda () (setq is-called t)) nil)
      (wait-for (lambda () is-called)))
    (buffer-substring-no-properties (point-min) (point-max))))

(setq capd-command command-line-args-left
      command-line-args-left nil
      ;; What is proved is what happens, not how fast this machine is at the moment.
      capd-budget 20)

(if (getenv "CAPD_TEST_ALONE")
    (progn
      (saw :status (failed-with #'capd-status))
      (saw :turn (failed-with #'capd-turn "please run talk"))
      (saw :prompt (transformed "please run talk")))
  (let* ((entry (capd-mcp-hub-entry))
         (env (plist-get (cdr entry) :env))
         (process-environment
          (append (list (concat "CAPD_SESSION=" (plist-get env :CAPD_SESSION))
                        (concat "CAPD_CLIENT=" (plist-get env :CAPD_CLIENT)))
                  process-environment))
         (heard "")
         (shim (make-process
                :name "shim" :connection-type 'pipe :noquery t
                :command (cons (plist-get (cdr entry) :command) (plist-get (cdr entry) :args))
                :filter (lambda (_ text) (setq heard (concat heard text))))))
    (process-send-string
     shim
     (concat "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
             "{\"protocolVersion\":\"2025-03-26\",\"capabilities\":{},"
             "\"clientInfo\":{\"name\":\"mcp-emacs\",\"version\":\"1\"}}}\n"
             "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"))
    (wait-for (lambda () (string-search "\n" heard)))
    (saw :enabled (capd-enable "talk"))
    (saw :tools (vconcat (capd-tools)))
    (saw :called (capd-call "talk__echo" '(:text "grüße")))
    (saw :wrong (failed-with #'capd-enable "dance"))
    (saw :disabled (capd-disable "talk"))
    (wait-for (lambda ()
                (equal (plist-get (plist-get (capd-ask "status") :embedder) :state) "ready")))
    (saw :prompt (transformed "please run talk"))
    (saw :again (transformed "please run talk"))
    (saw :status (capd-status))
    (delete-process shim)))

(princ (json-serialize seen))
(terpri)
;;; emacs_user.el ends here
