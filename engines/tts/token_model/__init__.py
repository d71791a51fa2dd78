"""Language models that write ids of sound: several speeches share each step.

The engines `indri` and `bark` use it, each with its own ids and their order.
"""
